"""What all tests have in common."""

import signal

# A shell starts background jobs with interrupts ignored, and nohup with hang-ups: the programs under test would inherit that, and
# the tests of signals would say something about the caller's shell.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
