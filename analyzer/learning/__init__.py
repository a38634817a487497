"""Learning of the models' weights from measured rows; torch and scikit-learn are imported only where used."""
