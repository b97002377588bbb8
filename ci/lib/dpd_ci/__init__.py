"""What ci/install and ci/test are made of: the standard library only, since nothing is installed yet."""
