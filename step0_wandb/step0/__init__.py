"""From history rows and config to step 0: the row, the setup and the checks that apply."""
