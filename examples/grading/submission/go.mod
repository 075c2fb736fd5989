module lru

go 1.19
