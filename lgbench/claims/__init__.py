"""Claims of papers as files, and what runs say of them."""
