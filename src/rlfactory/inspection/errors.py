"""What a look inside can fail on."""


class InspectionError(ValueError):
    """A run that can't be looked into; the message says why."""
