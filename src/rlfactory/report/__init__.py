"""What runs say together: tables, statistics, curves and samples, and two runs side by side."""
