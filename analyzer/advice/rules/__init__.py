"""One module for each rule of advice; `analyzer.advice.registry` finds them by their names."""
