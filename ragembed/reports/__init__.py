"""Reports on stores, and evaluations, each as one HTML file that opens without a network."""
