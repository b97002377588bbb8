"""What ci/install and ci/test are made of, from the standard library: nothing is installed yet."""
