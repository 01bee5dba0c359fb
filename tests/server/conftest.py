import pytest

import served


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    """One server for all tests that leave it as it was. Limits are small, so that no test has to wait for them."""
    with served.serving(tmp_path_factory.mktemp("server") / "log", "--served-model-name", "words", "--request-timeout", "0.5",
                        "--write-timeout", "1", "--max-body-bytes", "1M", "--log-interval", "1") as running:
        yield running
        running.wait_idle()
        assert running.stop() == 0, running.text()
