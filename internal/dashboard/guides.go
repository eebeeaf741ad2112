// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"io/fs"
	"regexp"
	"slices"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer/html"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"

	"github.com/mailstead/mailstead/docs"
)

// guideFiles has the guides that only the dashboard shows. Guides that are also for readers of the
// repository are in docs.
//
//go:embed guides/*.md
var guideFiles embed.FS

// manual is the documentation at /docs.
type manual struct {
	Guides    []*guide
	Resources []*referencePage
	About     template.HTML // introduction to the API
	passages  []passage
}

// guide is a page of the manual.
type guide struct {
	Slug, Title, Lead string
	Text              template.HTML
	Parts             []heading
}

// heading is a heading of a guide.
type heading struct{ ID, Title string }

// passage is a searchable part of the manual.
type passage struct {
	Title, In, Path string
	text            string // its plain text
	lower           string // title and text in lower case, for matching
}

// newManual reads the guides and builds the reference.
func newManual(reference []byte, base string, dev bool) (*manual, error) {
	m := &manual{}
	for _, g := range []struct {
		slug, title, lead, file string
		in                      fs.FS
	}{
		{"quickstart", "Quickstart", "From nothing to a first message, in ten minutes.", "guides/quickstart.md", guideFiles},
		{"dns", "DNS", "Which records a domain needs, and what each of them says.", "dns.md", docs.Guides},
		{"sending", "Sending", "All that an application can ask for when it sends.", "sending.md", docs.Guides},
		{"receiving", "Receiving", "How mail comes in, and how your application reads it.", "receiving.md", docs.Guides},
		{"mailboxes", "Mailboxes", "Making them, what reaches them, who signs in, moving in and out.", "mailboxes.md", docs.Guides},
		{"webhooks", "Webhooks", "Events told to your application, and how to check that they are ours.", "webhooks.md", docs.Guides},
		{"smtp", "SMTP", "Sending from programs that speak SMTP.", "guides/smtp.md", guideFiles},
		{"clients", "Mail clients", "Setting up mail programs and phones.", "guides/clients.md", guideFiles},
		{"names", "Names in the API", "Which word stands for which thing, everywhere.", "guides/names.md", guideFiles},
		{"coming-from", "Coming from Resend, Postmark, Mailgun or SES", "What stands here for the fields and events that your code knows.", "guides/coming-from.md", guideFiles},
		{"moving-in", "Moving in", "Coming from another service without losing mail.", "guides/moving-in.md", guideFiles},
		{"going-live", "Going live", "What to check before the first real message.", "guides/going-live.md", guideFiles},
		{"operating", "Operating", "For those who run the service.", "operating.md", docs.Guides},
	} {
		source, err := fs.ReadFile(g.in, g.file)
		if err != nil {
			return nil, fmt.Errorf("reading the guide %s: %w", g.slug, err)
		}
		m.addGuide(&guide{Slug: g.slug, Title: g.title, Lead: g.lead}, source)
	}
	var err error
	if m.Resources, m.About, err = readReference(reference, base); err != nil {
		return nil, err
	}
	if !dev {
		m.Resources = slices.DeleteFunc(m.Resources, func(r *referencePage) bool { return r.Slug == "sandbox" })
	}
	for _, r := range m.Resources {
		m.indexReferencePage(r)
	}
	return m, nil
}

// newMarkdown returns a Markdown converter that leaves out raw HTML.
func newMarkdown() goldmark.Markdown {
	return goldmark.New(goldmark.WithExtensions(extension.Table, extension.Linkify), goldmark.WithParserOptions(parser.WithAutoHeadingID(),
		parser.WithASTTransformers(util.Prioritized(linkTransformer{}, 100))), goldmark.WithRendererOptions(html.WithXHTML()))
}

// renderMarkdown renders a short text as HTML.
func renderMarkdown(source string) template.HTML {
	var out bytes.Buffer
	if err := newMarkdown().Convert([]byte(source), &out); err != nil {
		return template.HTML(template.HTMLEscapeString(source)) //nolint:gosec // escaped
	}
	return template.HTML(out.String()) //nolint:gosec // of our own texts, and goldmark leaves html out
}

// linkTransformer turns links between files into links between pages. It removes links to files
// that are only in the repository.
type linkTransformer struct{}

var fileLink = regexp.MustCompile(`^([a-z-]+)\.md(#.*)?$`)

// Transform implements parser.ASTTransformer.
func (linkTransformer) Transform(doc *ast.Document, _ text.Reader, _ parser.Context) {
	var dead []*ast.Link
	_ = ast.Walk(doc, func(n ast.Node, enter bool) (ast.WalkStatus, error) {
		link, ok := n.(*ast.Link)
		if !ok || !enter {
			return ast.WalkContinue, nil
		}
		to := string(link.Destination)
		switch m := fileLink.FindStringSubmatch(to); {
		case m != nil && m[1] != "decisions" && m[1] != "benchmarks":
			link.Destination = []byte("/docs/guides/" + m[1] + m[2])
		case strings.HasPrefix(to, "https://"), strings.HasPrefix(to, "/"), strings.HasPrefix(to, "#"):
		default:
			dead = append(dead, link)
		}
		return ast.WalkContinue, nil
	})
	for _, link := range dead {
		parent := link.Parent()
		for c := link.FirstChild(); c != nil; {
			next := c.NextSibling()
			parent.InsertBefore(parent, link, c)
			c = next
		}
		parent.RemoveChild(parent, link)
	}
}

// addGuide renders a guide and indexes it for the search. Its first heading is the title of the
// page.
func (m *manual) addGuide(g *guide, source []byte) {
	md := newMarkdown()
	doc := md.Parser().Parse(text.NewReader(source))
	if first, ok := doc.FirstChild().(*ast.Heading); ok && first.Level == 1 {
		doc.RemoveChild(doc, first)
	}
	here := passage{Title: g.Title, In: "Guide", Path: "/docs/guides/" + g.Slug}
	words := []string{g.Lead}
	end := func() {
		here.text = strings.Join(strings.Fields(strings.Join(words, " ")), " ")
		m.add(here)
		words = nil
	}
	for n := doc.FirstChild(); n != nil; n = n.NextSibling() {
		said := plainText(n, source)
		h, ok := n.(*ast.Heading)
		if !ok || h.Level > 3 {
			words = append(words, said)
			continue
		}
		end()
		id, _ := h.AttributeString("id")
		name, _ := id.([]byte)
		here = passage{Title: said, In: g.Title, Path: "/docs/guides/" + g.Slug + "#" + string(name)}
		if h.Level == 2 {
			g.Parts = append(g.Parts, heading{string(name), said})
		}
	}
	end()
	var out bytes.Buffer
	if err := md.Renderer().Render(&out, source, doc); err != nil {
		out.Reset() // writing to memory doesn't fail
	}
	g.Text = template.HTML(strings.ReplaceAll(out.String(), "<pre>", `<pre tabindex="0">`)) //nolint:gosec // our own text, and goldmark leaves html out
	m.Guides = append(m.Guides, g)
}

// plainText returns the text of a node.
func plainText(n ast.Node, source []byte) string {
	var out strings.Builder
	_ = ast.Walk(n, func(n ast.Node, enter bool) (ast.WalkStatus, error) {
		switch x := n.(type) {
		case *ast.Text:
			if enter {
				out.Write(x.Segment.Value(source))
				if x.SoftLineBreak() {
					out.WriteByte(' ')
				}
			}
		case *ast.String:
			if enter {
				out.Write(x.Value)
			}
		default:
			if !enter && n.Type() == ast.TypeBlock {
				out.WriteByte(' ')
			}
			if enter && n.Type() == ast.TypeBlock && n.Kind() != ast.KindDocument && (n.Kind() == ast.KindFencedCodeBlock || n.Kind() == ast.KindCodeBlock) {
				out.Write(n.Lines().Value(source))
			}
		}
		return ast.WalkContinue, nil
	})
	return strings.TrimSpace(out.String())
}

func (m *manual) indexReferencePage(r *referencePage) {
	m.add(passage{Title: r.Name, In: "API", Path: "/docs/api/" + r.Slug, text: stripTags(r.Text)})
	for _, o := range r.Operations {
		words := []string{o.Method, o.Path, stripTags(o.Text)}
		for _, row := range slices.Concat(o.Parameters, o.Body) {
			words = append(words, row.Name, row.Text)
		}
		m.add(passage{Title: o.Summary, In: "API, " + r.Name, Path: "/docs/api/" + r.Slug + "#" + o.ID, text: strings.Join(words, " ")})
	}
}

var tagPattern = regexp.MustCompile(`<[^>]*>`)

// stripTags removes the tags from trusted HTML.
func stripTags(text template.HTML) string {
	return strings.NewReplacer("&lt;", "<", "&gt;", ">", "&quot;", `"`, "&amp;", "&").Replace(tagPattern.ReplaceAllString(string(text), ""))
}

func (m *manual) add(p passage) {
	p.lower = strings.ToLower(p.Title + " " + p.text)
	m.passages = append(m.passages, p)
}
