package lru

import (
	"strconv"
	"testing"
)

func expect(t *testing.T, c *Cache, key, value string, present bool) {
	t.Helper()
	if got, ok := c.Get(key); got != value || ok != present {
		t.Errorf("Get(%q) = %q, %v; expected %q, %v", key, got, ok, value, present)
	}
}

func TestAbsentKey(t *testing.T) {
	expect(t, New(2), "a", "", false)
}

func TestSetAndGet(t *testing.T) {
	c := New(2)
	c.Set("a", "1")
	c.Set("b", "2")
	expect(t, c, "a", "1", true)
	expect(t, c, "b", "2", true)
}

func TestReplace(t *testing.T) {
	c := New(2)
	c.Set("a", "1")
	c.Set("a", "2")
	expect(t, c, "a", "2", true)
	if c.Len() != 1 {
		t.Errorf("Len() = %d; expected 1", c.Len())
	}
}

func TestOldestMakesRoom(t *testing.T) {
	c := New(3)
	for n := 0; n < 1000; n++ {
		c.Set(strconv.Itoa(n), "x")
	}
	if c.Len() != 3 {
		t.Errorf("Len() = %d; expected 3", c.Len())
	}
	expect(t, c, "996", "", false)
	expect(t, c, "997", "x", true)
}

func TestGetCountsAsUse(t *testing.T) {
	c := New(2)
	c.Set("a", "1")
	c.Set("b", "2")
	c.Get("a")
	c.Set("c", "3")
	expect(t, c, "a", "1", true)
	expect(t, c, "b", "", false)
}

func TestNoRoom(t *testing.T) {
	c := New(0)
	if c.Set("a", "1") {
		t.Error("Set reports that a cache without room has kept an entry")
	}
	expect(t, c, "a", "", false)
}
