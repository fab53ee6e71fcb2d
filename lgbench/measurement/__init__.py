"""Testing trained models at every length."""
