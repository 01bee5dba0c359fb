import pytest

import served


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    """One server for all tests that leave it as it was."""
    with served.serving(tmp_path_factory.mktemp("server") / "log", "--served-model-name", "words", "--max-body-bytes", "1M",
                        "--log-interval", "1") as running:
        yield running
        running.wait_idle()
        assert running.stop() == 0, running.text()


@pytest.fixture(scope="session")
def endless_model(tmp_path_factory):
    """For served.serving: a model whose answers do not end while a test looks at them, with no more KV memory than others."""
    return {"model": served.endless_model(tmp_path_factory.mktemp("endless") / "model"), "env": {"SLUICE_MAX_TOTAL_TOKENS": "262144"}}


@pytest.fixture(scope="session")
def endless(tmp_path_factory, endless_model):
    """One server of it."""
    with served.serving(tmp_path_factory.mktemp("endless") / "log", **endless_model) as running:
        yield running
        running.wait_idle()
        assert running.stop() == 0, running.text()
