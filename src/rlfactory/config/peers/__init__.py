"""Names and configuration files of other libraries, in the words of this one's command."""
