// Package lru is a cache with a limited number of entries. When it is full, the entry that was used least recently makes room.
package lru

// Revision is the number of this submission.
const Revision = 1

type entry struct {
	key, value string
}

// Cache has at most a fixed number of entries.
type Cache struct {
	most    int
	entries []entry // the least recently used one comes first
}

// New makes a cache of at most `most` entries.
func New(most int) *Cache {
	return &Cache{most: most}
}

// Len is the number of entries.
func (c *Cache) Len() int {
	return len(c.entries)
}

// Get returns the value of a key, and whether there is one.
func (c *Cache) Get(key string) (string, bool) {
	for _, e := range c.entries {
		if e.key == key {
			// The mistake of this submission: the entry that is used here is not moved to the end.
			return e.value, true
		}
	}
	return "", false
}

// Set gives a key a value. It returns whether the cache can have entries.
func (c *Cache) Set(key, value string) bool {
	if c.most <= 0 {
		return false
	}
	for i, e := range c.entries {
		if e.key == key {
			c.entries = append(c.entries[:i], c.entries[i+1:]...)
			break
		}
	}
	if len(c.entries) == c.most {
		c.entries = c.entries[1:]
	}
	c.entries = append(c.entries, entry{key, value})
	return true
}
