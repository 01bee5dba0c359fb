"""What all tests have in common."""

import signal

# A shell starts background jobs with interrupts and quits ignored, and nohup with hang-ups: the programs under test would inherit that, and
# the tests of signals would say something about the caller's shell.
signal.signal(signal.SIGINT, signal.default_int_handler)
for ignored in (signal.SIGHUP, signal.SIGQUIT):
    signal.signal(ignored, signal.SIG_DFL)
