"""Reports on stores, evaluations and tuning runs, each as one HTML file that opens without a network."""
