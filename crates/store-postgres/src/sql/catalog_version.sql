select version from catalog
