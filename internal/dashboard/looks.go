// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"net/url"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/mailstead/mailstead/internal/address"
)

//go:embed templates
var templateFiles embed.FS

//go:embed static
var staticFiles embed.FS

// looks are the templates and the files that pages load, with names that change
// with what is in them, so that browsers keep them for good.
type looks struct {
	pages  map[string]func() (*template.Template, error) // made when first shown: together they take 14 MB
	static map[string]*file                              // by path below /static/
	named  map[string]string
	icons  map[string]template.HTML
}

type file struct {
	kind        string
	plain, gzip []byte
}

func newLooks() (*looks, error) {
	l := &looks{pages: map[string]func() (*template.Template, error){}, static: map[string]*file{}, named: map[string]string{}, icons: map[string]template.HTML{}}
	if err := l.readStatic(); err != nil {
		return nil, err
	}
	frame, err := template.New("frame").Funcs(l.funcs()).ParseFS(templateFiles, "templates/frame.html", "templates/parts/*.html")
	if err != nil {
		return nil, err
	}
	names, err := fs.Glob(templateFiles, "templates/*.html")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		base := strings.TrimSuffix(path.Base(name), ".html")
		if base == "frame" {
			continue
		}
		l.pages[base] = sync.OnceValues(func() (*template.Template, error) {
			t, err := frame.Clone()
			if err != nil {
				return nil, err
			}
			return t.ParseFS(templateFiles, name)
		})
	}
	return l, nil
}

// readStatic reads the files. A style sheet names others, so it comes last.
func (l *looks) readStatic() error {
	var sheets []string
	add := func(name string, text []byte) {
		sum := sha256.Sum256(text)
		ext := path.Ext(name)
		named := strings.TrimSuffix(name, ext) + "." + hex.EncodeToString(sum[:6]) + ext
		f := &file{kind: kind(ext), plain: text}
		if ext != ".woff2" {
			var packed bytes.Buffer
			w := gzip.NewWriter(&packed)
			_, _ = w.Write(text) // to memory
			_ = w.Close()
			f.gzip = packed.Bytes()
		}
		l.static[named], l.named[name] = f, "/static/"+named
	}
	err := fs.WalkDir(staticFiles, "static", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := staticFiles.ReadFile(name)
		if err != nil {
			return err
		}
		name = strings.TrimPrefix(name, "static/")
		switch {
		case strings.HasPrefix(name, "icons/"):
			l.icons[strings.TrimSuffix(path.Base(name), ".svg")] = inline(text)
		case path.Ext(name) == ".css":
			sheets = append(sheets, name)
		default:
			add(name, text)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, name := range sheets {
		text, err := staticFiles.ReadFile("static/" + name)
		if err != nil {
			return err
		}
		for plain, named := range l.named {
			text = bytes.ReplaceAll(text, []byte(`"`+plain+`"`), []byte(`"`+named+`"`))
		}
		add(name, text)
	}
	return nil
}

func kind(ext string) string {
	if ext == ".woff2" {
		return "font/woff2"
	}
	return mime.TypeByExtension(ext)
}

// inline makes an icon fit to stand in a page: decoration, as large as its
// text.
func inline(svg []byte) template.HTML {
	at := bytes.Index(svg, []byte("<svg"))
	end := bytes.IndexByte(svg[at:], '>') + at
	body := strings.Join(strings.Fields(strings.TrimSuffix(strings.TrimSpace(string(svg[end+1:])), "</svg>")), " ")
	return template.HTML(`<svg class="icon" viewBox="0 0 24 24" fill="none" stroke="currentColor" stroke-width="2" ` + //nolint:gosec // our own file
		`stroke-linecap="round" stroke-linejoin="round" aria-hidden="true" focusable="false">` + body + `</svg>`)
}

// asset returns the URL of a file.
func (l *looks) asset(name string) string { return l.named[name] }

// files serves the files.
func (l *looks) files() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f := l.static[strings.TrimPrefix(r.URL.Path, "/static/")]
		if f == nil {
			http.NotFound(w, r)
			return
		}
		h := w.Header()
		h.Set("Content-Type", f.kind)
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
		h.Set("Vary", "Accept-Encoding")
		text := f.plain
		if f.gzip != nil && strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			h.Set("Content-Encoding", "gzip")
			text = f.gzip
		}
		_, _ = w.Write(text)
	})
}

// render writes a page, or the part of it that was asked for.
func (l *looks) render(w io.Writer, s screen) error {
	page := l.pages[s.Template]
	if page == nil {
		return fmt.Errorf("there is no template %s", s.Template)
	}
	t, err := page()
	if err != nil {
		return err
	}
	if s.Part {
		return t.ExecuteTemplate(w, "part", s)
	}
	return t.ExecuteTemplate(w, "frame.html", s)
}

// funcs are what templates can call.
func (l *looks) funcs() template.FuncMap {
	return template.FuncMap{
		"asset": l.asset,
		"icon": func(name string) (template.HTML, error) {
			svg, ok := l.icons[name]
			if !ok {
				return "", fmt.Errorf("there is no icon %s", name)
			}
			return svg, nil
		},
		"field":     newField,
		"ticked":    ticked,
		"agent":     agent,
		"dict":      dict,
		"ago":       func(now, t time.Time) template.HTML { return moment(t, ago(now, t)) },
		"date":      func(t time.Time) template.HTML { return moment(t, t.UTC().Format("2 Jan 2006")) },
		"stamp":     func(t time.Time) template.HTML { return moment(t, stamp(t)) },
		"size":      size,
		"count":     count,
		"share":     share,
		"megabytes": megabytes,
		"choice":    choice, "enforcements": enforcements, "filterings": filterings, "stsModes": stsModes, "spamLevels": spamLevels,
		"tone": func(state any) string { return tone(fmt.Sprint(state)) },
		"word": func(state any) string { return word(fmt.Sprint(state)) },
		"join": strings.Join,
		// A text with addresses: none passes for another one.
		"shown": address.DisplayText,
		// A text as one segment of a path, whatever is in it.
		"segment": url.PathEscape,
		"minus":   func(n int) int { return n - 1 },
	}
}
