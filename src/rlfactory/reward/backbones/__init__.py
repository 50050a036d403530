"""Networks that several rewards share."""
