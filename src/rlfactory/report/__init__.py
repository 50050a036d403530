"""Reports on runs and sweeps: tables, statistics, curves and samples; and two runs compared."""
