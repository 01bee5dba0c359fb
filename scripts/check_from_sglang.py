"""docs/from-sglang.md maps what the project was made from to files, symbols and tests; this tells when one is gone."""

import re

PAGE = "docs/from-sglang.md"
# What the two changes of SGLang contain; each has a row.
NAMES = """
FlashInferCuteDslMoE CuteDslMoEWrapper interleave_w13_halves load_up_proj_weight_first process_weights_after_loading
convert_sf_to_mma_layout cutedsl_quant_scale_to_scalar resolve_cutedsl_standard_scales w1_alpha fc2_input_scale
_FP4_SF_VEC_SIZE _cutedsl_logged_scalarize MoeQuantInfo MoeRunnerConfig register_fused_func log_info_on_rank0
print_warning_once _handle_moe_kernel_config disable_shared_experts_fusion skip_local_expert_mapping FLASHINFER_TRTLLM
SGLANG_CUTEDSL_MOE_SCALAR_INPUT_SCALE torch.inference_mode autotune
--moe-runner-backend --quantization --tp --ep --mem-fraction-static --attention-backend --model-loader-extra-config
test_cutedsl_moe.py test_v2_wrapper_correctness test_v2_cuda_graph_parity test_v2_ep_sharded_allreduce
test_deepseek_v3_fp4_cutedsl_moe.py TestDeepseekV3FP4CuteDSLMoE test_a_gsm8k GSM8K_ACCURACY_THRESHOLD
FULL_DEEPSEEK_V3_FP4_MODEL_PATH SERVER_LAUNCH_TIMEOUT popen_launch_server kill_process_tree register_cuda_ci
run_eval_few_shot_gsm8k write_github_step_summary
FlashInferCutlassMoeQuantInfo FlashInferCutlassMxfp4MoeQuantInfo FlashInferMxfp4CutlassMoeQuantInfo
_flashinfer_cutlass_fused_moe _activation_type ActivationType _run_flashinfer_cutlass
fused_experts_none_to_flashinfer_cutlass fused_experts_none_to_flashinfer_mxfp4 create_moe_runner MoeRunner
MoeRunnerBackend flashinfer_cutlass.py flashinfer_mxfp4.py modelopt_quant.py unquant.py mxfp4.py
mxfp4_flashinfer_cutlass_moe.py runner.py cutlass_fused_moe test_mxfp4_sm90_cutlass.py
test_process_weights_matches_direct_interleave test_apply_sm90_cutlass_matches_flashinfer_direct
""".split()
PHRASES = ["Expected even size on interleave dimension", "Expected split dim divisible by group_size", "CuteDSL got empty",
           "CuteDSL: reducing per-expert", "quantization == modelopt_fp4"]


def rows(text):
    """(line number, cells) of every table row of four columns that starts with a quoted name."""
    for number, line in enumerate(text.splitlines(), 1):
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if line.startswith("| `") and len(cells) == 4:
            yield number, cells


def references(cell):
    """[(path, [name, ...]), ...]: quoted words, each path followed by what stands in that file."""
    found = []
    for word in re.findall(r"`([^`]+)`", cell):
        if re.match(r"(src|tests|scripts|docs)/[\w/.-]+\.\w+$", word):
            found.append((word, []))
        elif found:
            found[-1][1].append(word)
    return found


def has_test(text, name):
    if "." not in name:
        return f"def {name}(" in text
    suite, case = name.split(".", 1)
    return re.search(rf"TEST(?:_F|_P)?\(\s*{re.escape(suite)},\s*{re.escape(case)}\)", text) is not None


def has_symbol(text, name):
    return re.search(rf"(?<![\w-]){re.escape(name)}(?![\w])", text) is not None


def reference_problems(root, number, cell, present, kind):
    problems = []
    for path, names in references(cell):
        file = root / path
        if not file.is_file():
            problems.append(f"{PAGE}:{number}: no file {path}")
            continue
        text = file.read_text(encoding="utf-8")
        problems += [f"{PAGE}:{number}: no {kind} {name} in {path}" for name in names if not present(text, name)]
    return problems


def row_problems(root, number, cells):
    _, _, here, tests = cells
    problems = reference_problems(root, number, here, has_symbol, "symbol")
    problems += reference_problems(root, number, tests, has_test, "test")
    if not here.startswith("not here: ") and not references(tests):
        problems.append(f"{PAGE}:{number}: neither a test nor a reason why it is not here")
    return problems


def run(root):
    """{rule: [problem, ...]}"""
    text = (root / PAGE).read_text(encoding="utf-8")
    table = list(rows(text))
    listed = {re.match(r"`([^`]+)`", cells[0]).group(1) for _, cells in table}
    missing = [f"{PAGE}: no row for {name}" for name in NAMES + PHRASES if name not in listed]
    gone = [problem for number, cells in table for problem in row_problems(root, number, cells)]
    return {"SGLang's names all have a row": missing, "what docs/from-sglang.md names exists": gone}
