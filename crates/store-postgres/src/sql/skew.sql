select millis, later from skew
