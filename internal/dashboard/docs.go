// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// docsData is the data of a page of the manual.
type docsData struct {
	Manual *manual
	Now    string // path of the current page, for the table of contents
	Find   string
	Guide  *guide
	Of     *referencePage
	Hits   []searchHit
}

func (d *Dashboard) docsPage(template, title string, r docsData) page {
	r.Manual = d.manual
	return page{Template: template, Title: title, Section: "docs", Open: true, Data: r}
}

func (d *Dashboard) docs(*requestContext) (page, error) {
	return d.docsPage("docs", "Documentation", docsData{Now: "/docs"}), nil
}

func (d *Dashboard) guide(v *requestContext) (page, error) {
	for _, g := range d.manual.Guides {
		if g.Slug == v.r.PathValue("guide") {
			return d.docsPage("docs-guide", g.Title, docsData{Now: "/docs/guides/" + g.Slug, Guide: g}), nil
		}
	}
	return page{}, notFound()
}

func (d *Dashboard) reference(v *requestContext) (page, error) {
	for _, r := range d.manual.Resources {
		if r.Slug == v.r.PathValue("resource") {
			return d.docsPage("docs-api", r.Name+" (API)", docsData{Now: "/docs/api/" + r.Slug, Of: r}), nil
		}
	}
	return page{}, notFound()
}

// searchHit is a search result with the text around the first match.
type searchHit struct {
	passage
	Before, Word, After string
	score               int
}

const (
	maxHits       = 30
	maxQueryBytes = 200
	excerptBytes  = 120 // bytes shown on each side of a match
)

func (d *Dashboard) searchDocs(v *requestContext) (page, error) {
	find := strings.TrimSpace(v.r.URL.Query().Get("q"))
	if len(find) > maxQueryBytes {
		find = strings.ToValidUTF8(find[:maxQueryBytes], "")
	}
	return d.docsPage("docs-search", "Search the documentation", docsData{Now: "/docs/search", Find: find, Hits: d.manual.search(find)}), nil
}

// search returns the passages that contain all words, best match first.
func (m *manual) search(text string) (hits []searchHit) {
	words := strings.Fields(strings.ToLower(text))
	if len(words) == 0 {
		return nil
	}
	for _, p := range m.passages {
		h := searchHit{passage: p}
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
	slices.SortStableFunc(hits, func(a, b searchHit) int { return b.score - a.score })
	return hits[:min(len(hits), maxHits)]
}

// excerpt returns a part of a text around a word, or its beginning.
func excerpt(text, word string) (before, found, after string) {
	at := strings.Index(strings.ToLower(text), word)
	if at < 0 || at+len(word) > len(text) { // the match is in the title, or the lower-case text is longer than the original
		return "", "", truncate(text, 2*excerptBytes)
	}
	start := max(0, at-excerptBytes)
	for start > 0 && !utf8.RuneStart(text[start]) {
		start--
	}
	before = text[start:at]
	if start > 0 {
		before = "… " + before
	}
	return strings.ToValidUTF8(before, ""), strings.ToValidUTF8(text[at:at+len(word)], ""), truncate(text[at+len(word):], excerptBytes)
}

func truncate(text string, n int) string {
	if len(text) <= n {
		return strings.ToValidUTF8(text, "")
	}
	return strings.ToValidUTF8(text[:n], "") + " …"
}
