// Translation of an Oniguruma pattern into a PCRE2 pattern that matches the same text.
//
// Called by Regex only. The two dialects agree on what tokenizer files mostly use. Where they do not (white space and
// word characters, scripts, intervals followed by '+', nested and intersected classes, line ends) the pattern is
// rewritten; a construct outside what is known to agree is refused by name: a wrong split would give wrong tokens
// silently.
#pragma once

#include <string>
#include <string_view>

#include "core/function_ref.h"

namespace sluice::text {

// Throws Error(unsupported) naming `where` and the construct, Error(bad_input) for a pattern that is no expression.
// `script_name` says whether PCRE2 knows a script of that name.
std::string translate_oniguruma(std::string_view pattern, const std::string& where,
                                FunctionRef<bool(std::string_view)> script_name);

}  // namespace sluice::text
