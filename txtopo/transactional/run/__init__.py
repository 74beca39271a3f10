"""The run loop round the core: it carries out actions and passes back what came of them."""
