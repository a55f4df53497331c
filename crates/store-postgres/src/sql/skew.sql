select millis from skew
