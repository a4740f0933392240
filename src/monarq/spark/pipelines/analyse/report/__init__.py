"""An analysis as one page of HTML with charts: no script, nothing from anywhere else."""
