"""Plan quantised networks on Arm Ethos-U NPUs."""

__version__ = "0.1.0"
