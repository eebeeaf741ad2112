// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// reading is what a page of the manual shows.
type readingPage struct {
	Manual *manual
	Now    string // the path of the page, for the contents
	Find   string
	Guide  *guide
	Of     *resource
	Hits   []hit
}

func (d *Dashboard) readPage(template, title string, r readingPage) page {
	r.Manual = d.manual
	return page{Template: template, Title: title, Section: "docs", Open: true, Data: r}
}

func (d *Dashboard) docs(*visit) (page, error) {
	return d.readPage("docs", "Documentation", readingPage{Now: "/docs"}), nil
}

func (d *Dashboard) guide(v *visit) (page, error) {
	for _, g := range d.manual.Guides {
		if g.Slug == v.r.PathValue("guide") {
			return d.readPage("docs-guide", g.Title, readingPage{Now: "/docs/guides/" + g.Slug, Guide: g}), nil
		}
	}
	return page{}, notFound()
}

func (d *Dashboard) reference(v *visit) (page, error) {
	for _, r := range d.manual.Resources {
		if r.Slug == v.r.PathValue("resource") {
			return d.readPage("docs-api", r.Name+" (API)", readingPage{Now: "/docs/api/" + r.Slug, Of: r}), nil
		}
	}
	return page{}, notFound()
}

// hit is what a search has found, with the words around the first one.
type hit struct {
	passage
	Before, Word, After string
	score               int
}

const (
	maxHits      = 30
	maxFindBytes = 200
	around       = 120 // bytes shown on each side of a word
)

func (d *Dashboard) searchDocs(v *visit) (page, error) {
	find := strings.TrimSpace(v.r.URL.Query().Get("q"))
	if len(find) > maxFindBytes {
		find = strings.ToValidUTF8(find[:maxFindBytes], "")
	}
	return d.readPage("docs-search", "Search the documentation", readingPage{Now: "/docs/search", Find: find, Hits: d.manual.find(find)}), nil
}

// find returns the passages that have all words, the best first.
func (m *manual) find(text string) (hits []hit) {
	words := strings.Fields(strings.ToLower(text))
	if len(words) == 0 {
		return nil
	}
	for _, p := range m.passages {
		h := hit{passage: p}
		for _, w := range words {
			n := strings.Count(p.lower, w)
			if n == 0 {
				h.score = 0
				break
			}
			h.score += min(n, 5)
			if strings.Contains(strings.ToLower(p.Title), w) {
				h.score += 10
			}
		}
		if h.score > 0 {
			h.Before, h.Word, h.After = excerpt(p.text, words[0])
			hits = append(hits, h)
		}
	}
	slices.SortStableFunc(hits, func(a, b hit) int { return b.score - a.score })
	return hits[:min(len(hits), maxHits)]
}

// excerpt is a piece of a text around a word, or its beginning.
func excerpt(text, word string) (before, found, after string) {
	at := strings.Index(strings.ToLower(text), word)
	if at < 0 || at+len(word) > len(text) { // in the title, or lower case is longer than what it was made of
		return "", "", cut(text, 2*around)
	}
	start := max(0, at-around)
	for start > 0 && !utf8.RuneStart(text[start]) {
		start--
	}
	before = text[start:at]
	if start > 0 {
		before = "… " + before
	}
	return strings.ToValidUTF8(before, ""), strings.ToValidUTF8(text[at:at+len(word)], ""), cut(text[at+len(word):], around)
}

func cut(text string, n int) string {
	if len(text) <= n {
		return strings.ToValidUTF8(text, "")
	}
	return strings.ToValidUTF8(text[:n], "") + " …"
}
