"""What others see of the verdicts: alerts, W&B tables and reports, the HTML page."""
