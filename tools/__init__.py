"""Commands for the people who release Cavalcade."""
