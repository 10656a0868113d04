"""What is random is computed: permutations, numbers, and what tells draws apart."""
