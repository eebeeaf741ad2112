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
	"github.com/mailstead/mailstead/internal/bytesize"
)

//go:embed templates
var templateFiles embed.FS

//go:embed static
var staticFiles embed.FS

// renderer has the templates and the static files. The names of static files change with their
// content, so that browsers can cache them forever.
type renderer struct {
	pages     map[string]func() (*template.Template, error) // parsed on first use: together they take 14 MB
	static    map[string]*staticFile                        // by path below /static/
	assetURLs map[string]string
	icons     map[string]template.HTML
}

type staticFile struct {
	mediaType   string
	plain, gzip []byte
}

func newRenderer() (*renderer, error) {
	l := &renderer{pages: map[string]func() (*template.Template, error){}, static: map[string]*staticFile{}, assetURLs: map[string]string{}, icons: map[string]template.HTML{}}
	if err := l.readStatic(); err != nil {
		return nil, err
	}
	frame, err := template.New("frame").Funcs(l.templateFuncs()).ParseFS(templateFiles, "templates/frame.html", "templates/parts/*.html")
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

// readStatic reads the static files. The style sheet refers to others, so it comes last.
func (l *renderer) readStatic() error {
	var sheets []string
	add := func(name string, text []byte) {
		sum := sha256.Sum256(text)
		ext := path.Ext(name)
		named := strings.TrimSuffix(name, ext) + "." + hex.EncodeToString(sum[:6]) + ext
		f := &staticFile{mediaType: mediaTypeOf(ext), plain: text}
		if ext != ".woff2" {
			var packed bytes.Buffer
			w := gzip.NewWriter(&packed)
			_, _ = w.Write(text) // writes to memory
			_ = w.Close()
			f.gzip = packed.Bytes()
		}
		l.static[named], l.assetURLs[name] = f, "/static/"+named
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
			l.icons[strings.TrimSuffix(path.Base(name), ".svg")] = inlineIcon(text)
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
		for plain, named := range l.assetURLs {
			text = bytes.ReplaceAll(text, []byte(`"`+plain+`"`), []byte(`"`+named+`"`))
		}
		add(name, text)
	}
	return nil
}

func mediaTypeOf(ext string) string {
	if ext == ".woff2" {
		return "font/woff2"
	}
	return mime.TypeByExtension(ext)
}

// inlineIcon prepares an icon for a page: decorative, and in the size of the text.
func inlineIcon(svg []byte) template.HTML {
	at := bytes.Index(svg, []byte("<svg"))
	end := bytes.IndexByte(svg[at:], '>') + at
	body := strings.Join(strings.Fields(strings.TrimSuffix(strings.TrimSpace(string(svg[end+1:])), "</svg>")), " ")
	return template.HTML(`<svg class="icon" viewBox="0 0 24 24" fill="none" stroke="currentColor" stroke-width="2" ` + //nolint:gosec // our own file
		`stroke-linecap="round" stroke-linejoin="round" aria-hidden="true" focusable="false">` + body + `</svg>`)
}

// assetURL returns the URL of a static file.
func (l *renderer) assetURL(name string) string { return l.assetURLs[name] }

// serveStatic returns the handler of the static files.
func (l *renderer) serveStatic() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f := l.static[strings.TrimPrefix(r.URL.Path, "/static/")]
		if f == nil {
			http.NotFound(w, r)
			return
		}
		h := w.Header()
		h.Set("Content-Type", f.mediaType)
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

// render writes a page, or the requested part of it.
func (l *renderer) render(w io.Writer, s pageData) error {
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

// templateFuncs returns the functions for templates.
func (l *renderer) templateFuncs() template.FuncMap {
	return template.FuncMap{
		"asset": l.assetURL,
		"icon": func(name string) (template.HTML, error) {
			svg, ok := l.icons[name]
			if !ok {
				return "", fmt.Errorf("there is no icon %s", name)
			}
			return svg, nil
		},
		"field":     newInputField,
		"ticked":    isTicked,
		"agent":     describeUserAgent,
		"dict":      dict,
		"ago":       func(now, t time.Time) template.HTML { return timeElement(t, relativeTime(now, t)) },
		"date":      func(t time.Time) template.HTML { return timeElement(t, t.UTC().Format("2 Jan 2006")) },
		"stamp":     func(t time.Time) template.HTML { return timeElement(t, formatTimestamp(t)) },
		"size":      bytesize.Format,
		"count":     formatCount,
		"share":     percentOf,
		"megabytes": toMegabytes,
		"choice":    optionLabel, "enforcements": dmarcOptions, "filterings": spamActionOptions, "stsModes": stsOptions, "spamLevels": spamStrictnessOptions,
		"tone": func(state any) string { return stateTone(fmt.Sprint(state)) },
		"word": func(state any) string { return stateText(fmt.Sprint(state)) },
		"join": strings.Join,
		// Displays a text with addresses so that none can be mistaken for another.
		"shown": address.DisplayText,
		// Escapes a text as one segment of a path.
		"segment": url.PathEscape,
		"minus":   func(n int) int { return n - 1 },
	}
}
