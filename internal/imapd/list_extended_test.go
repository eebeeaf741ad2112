// SPDX-License-Identifier: Apache-2.0

package imapd_test

import "testing"

// orchard creates the folders of RFC 5258 §5 and nothing else but INBOX.
func orchard(h *fixture, folders, subscribed []string) *client {
	c := h.login()
	for _, name := range []string{"Archive", "Drafts", "Junk", "Sent", "Trash"} {
		c.ok("DELETE " + name)
		c.ok("UNSUBSCRIBE " + name)
	}
	c.ok("UNSUBSCRIBE INBOX")
	for _, name := range folders {
		c.ok("CREATE " + name)
	}
	for _, name := range subscribed {
		c.ok("SUBSCRIBE " + name)
	}
	return c
}

// Examples 2 to 6 of RFC 5258 §5; \HasChildren is returned without request.
func TestListExamplesOfRFC5258(t *testing.T) {
	each(t, func(h *fixture) {
		c := orchard(h, []string{"Fruit", "Fruit/Apple", "Fruit/Banana", "Tofu", "Vegetable", "Vegetable/Broccoli", "Vegetable/Corn"},
			[]string{"INBOX", "Fruit/Banana", "Fruit/Peach", "Vegetable", "Vegetable/Broccoli"})
		subscribed := []string{
			`* LIST (\HasNoChildren \Subscribed) "/" INBOX`,
			`* LIST (\HasNoChildren \Subscribed) "/" Fruit/Banana`,
			`* LIST (\NonExistent \HasNoChildren \Subscribed) "/" Fruit/Peach`,
			`* LIST (\HasChildren \Subscribed) "/" Vegetable`,
			`* LIST (\HasNoChildren \Subscribed) "/" Vegetable/Broccoli`,
		}
		c.ok(`LIST (SUBSCRIBED) "" "*"`)
		c.got(subscribed...)
		c.ok(`LIST () "" "%" RETURN (CHILDREN)`)
		c.got(`* LIST (\HasNoChildren) "/" INBOX`, `* LIST (\HasChildren) "/" Fruit`, `* LIST (\HasNoChildren) "/" Tofu`,
			`* LIST (\HasChildren) "/" Vegetable`)
		c.ok(`LIST (REMOTE) "" "%" RETURN (CHILDREN)`)
		c.got(`* LIST (\HasNoChildren) "/" INBOX`, `* LIST (\HasChildren) "/" Fruit`, `* LIST (\HasNoChildren) "/" Tofu`,
			`* LIST (\HasChildren) "/" Vegetable`)
		c.ok(`LIST (REMOTE SUBSCRIBED SUBSCRIBED) "" "*"`)
		c.got(subscribed...)
		c.ok(`LIST (REMOTE) "" "*" RETURN (SUBSCRIBED)`)
		c.got(`* LIST (\HasNoChildren \Subscribed) "/" INBOX`, `* LIST (\HasChildren) "/" Fruit`,
			`* LIST (\HasNoChildren) "/" Fruit/Apple`, `* LIST (\HasNoChildren \Subscribed) "/" Fruit/Banana`,
			`* LIST (\HasNoChildren) "/" Tofu`, `* LIST (\HasChildren \Subscribed) "/" Vegetable`,
			`* LIST (\HasNoChildren \Subscribed) "/" Vegetable/Broccoli`, `* LIST (\HasNoChildren) "/" Vegetable/Corn`)
		// Example 7: several patterns, each name once.
		c.ok(`LIST "" ("INBOX" "Tofu" "Fruit/%" "F*le")`)
		c.got(`* LIST (\HasNoChildren) "/" INBOX`, `* LIST (\HasNoChildren) "/" Fruit/Apple`, `* LIST (\HasNoChildren) "/" Fruit/Banana`,
			`* LIST (\HasNoChildren) "/" Tofu`)
		c.bad(`LIST (RECURSIVEMATCH) "" "*"`)
		c.bad(`LIST (REMOTE RECURSIVEMATCH) "" "*"`)
		c.bad(`LIST (FRESH) "" "*"`)
		c.bad(`LIST "" "*" RETURN (COLOUR)`)
		c.ok(`LIST () "" ""`) // not a request for the separator
		c.got()
	})
}

// Example 8 of RFC 5258 §5: \HasChildren and CHILDINFO are different.
func TestListChildInfo(t *testing.T) {
	each(t, func(h *fixture) {
		c := orchard(h, []string{"Foo", "Foo/Bar", "Foo/Baz", "Moo"}, []string{"Foo/Baz"})
		c.ok(`LIST (SUBSCRIBED) "" "*"`)
		c.got(`* LIST (\HasNoChildren \Subscribed) "/" Foo/Baz`)
		c.ok(`LIST (SUBSCRIBED) "" "%"`)
		c.got()
		c.ok(`LIST (SUBSCRIBED RECURSIVEMATCH) "" "%"`)
		c.got(`* LIST (\HasChildren) "/" Foo ("CHILDINFO" ("SUBSCRIBED"))`)
		c.ok("SUBSCRIBE Foo")
		c.ok(`LIST (SUBSCRIBED RECURSIVEMATCH) "" "%"`)
		c.got(`* LIST (\HasChildren \Subscribed) "/" Foo ("CHILDINFO" ("SUBSCRIBED"))`)
		// A2: Foo is neither there nor subscribed.
		c.ok("UNSUBSCRIBE Foo")
		c.ok("DELETE Foo")
		c.ok(`LIST (SUBSCRIBED RECURSIVEMATCH) "" "%"`)
		c.got(`* LIST (\NonExistent \HasChildren) "/" Foo ("CHILDINFO" ("SUBSCRIBED"))`)
		c.ok(`LIST () "" "%"`) // example 11
		c.got(`* LIST (\HasNoChildren) "/" INBOX`, `* LIST (\NonExistent \HasChildren) "/" Foo`, `* LIST (\HasNoChildren) "/" Moo`)
		c.ok(`LIST "" "%" RETURN (STATUS (MESSAGES))`) // only folders have a status
		c.got(`* LIST (\HasNoChildren) "/" INBOX`, `* STATUS INBOX (MESSAGES 0)`, `* LIST (\NonExistent \HasChildren) "/" Foo`,
			`* LIST (\HasNoChildren) "/" Moo`, `* STATUS Moo (MESSAGES 0)`)
		c.ok(`LIST "" "%"`)
		c.got(`* LIST (\HasNoChildren) "/" INBOX`, `* LIST (\Noselect \HasChildren) "/" Foo`, `* LIST (\HasNoChildren) "/" Moo`)
		// B: nothing is subscribed.
		c.ok("CREATE Foo")
		c.ok("UNSUBSCRIBE Foo/Baz")
		c.ok(`LIST (SUBSCRIBED RECURSIVEMATCH) "" "%"`)
		c.got()
		// C: Foo has children, but none of them is subscribed.
		c.ok("SUBSCRIBE Foo")
		c.ok("SUBSCRIBE Moo")
		c.ok(`LIST (SUBSCRIBED RECURSIVEMATCH) "" "%" RETURN (CHILDREN)`)
		c.got(`* LIST (\HasChildren \Subscribed) "/" Foo`, `* LIST (\HasNoChildren \Subscribed) "/" Moo`)
	})
}

// Examples 9 and 10 of RFC 5258 §5.
func TestListRecursiveMatch(t *testing.T) {
	each(t, func(h *fixture) {
		c := orchard(h, []string{"foo2/bar1", "foo2/bar2", "baz2/bar2", "baz2/bar22", "baz2/bar222", "eps2/mamba", "qux2/bar2", "foo"},
			[]string{"foo2/bar1", "foo2/bar2", "baz2/bar2", "baz2/bar22", "baz2/bar222", "eps2", "eps2/mamba", "qux2/bar2", "foo/bar"})
		c.ok("DELETE qux2")
		c.ok(`LIST (RECURSIVEMATCH SUBSCRIBED) "" "*2"`)
		c.got(`* LIST (\HasNoChildren \Subscribed) "/" baz2/bar2`, `* LIST (\HasNoChildren \Subscribed) "/" baz2/bar22`,
			`* LIST (\HasNoChildren \Subscribed) "/" baz2/bar222`, `* LIST (\HasChildren \Subscribed) "/" eps2 ("CHILDINFO" ("SUBSCRIBED"))`,
			`* LIST (\HasChildren) "/" foo2 ("CHILDINFO" ("SUBSCRIBED"))`, `* LIST (\HasNoChildren \Subscribed) "/" foo2/bar2`,
			`* LIST (\HasNoChildren \Subscribed) "/" qux2/bar2`)
		c.ok(`LIST "" ("foo" "foo/*")`)
		c.got(`* LIST (\HasNoChildren) "/" foo`)
		c.ok(`LIST (SUBSCRIBED) "" "foo/*"`)
		c.got(`* LIST (\NonExistent \HasNoChildren \Subscribed) "/" foo/bar`)
		c.ok(`LIST (SUBSCRIBED RECURSIVEMATCH) "" foo RETURN (CHILDREN)`)
		c.got(`* LIST (\HasNoChildren) "/" foo ("CHILDINFO" ("SUBSCRIBED"))`)
	})
}

// RFC 6154 §5 and RFC 5819 §2 with the options of others.
func TestListSpecialUseAndStatus(t *testing.T) {
	each(t, func(h *fixture) {
		c := h.login()
		c.ok("DELETE Drafts")
		c.ok(`CREATE Office/MyDrafts (USE (\Drafts))`)
		c.ok(`LIST (SPECIAL-USE RECURSIVEMATCH) "" (% Office/MyDrafts)`)
		c.has(`* LIST (\HasNoChildren \Drafts) "/" Office/MyDrafts`, `* LIST (\HasNoChildren \Sent) "/" Sent`)
		c.ok(`LIST (SPECIAL-USE RECURSIVEMATCH) "" O%`)
		c.got(`* LIST (\HasChildren) "/" Office ("CHILDINFO" ("SPECIAL-USE"))`)
		c.append("Sent", "", note("one"))
		c.append("Sent", `(\Seen) `, note("two"))
		c.ok(`LIST (SPECIAL-USE SUBSCRIBED) "" * RETURN (SPECIAL-USE STATUS (MESSAGES UNSEEN RECENT SIZE))`)
		c.has(`* LIST (\HasNoChildren \Subscribed \Sent) "/" Sent`,
			`* STATUS Sent (MESSAGES 2 RECENT 2 UNSEEN 1 SIZE `+itoa(len(note("one"))+len(note("two")))+`)`)
		c.bad(`LIST "" * RETURN (STATUS ())`)
	})
}
