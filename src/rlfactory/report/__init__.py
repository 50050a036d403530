"""All that is drawn of runs: samples, curves, page and summary of one, and tables of several."""
