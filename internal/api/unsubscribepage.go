// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"html/template"
	"net/http"
	"strconv"
)

// unsubscribePage is the content of the unsubscribe page.
type unsubscribePage struct {
	Title                  string
	Before, Address, After string // a sentence, split around the address
	Ask                    bool   // whether to show the button
}

const unsubscribeStyle = `:root{color-scheme:light dark}` +
	`body{font:1.125rem/1.5 system-ui,sans-serif;margin:0;padding:10vh 1rem;color:#1b1b1b;background:#fff}` +
	`main{max-width:34rem;margin:auto;overflow-wrap:anywhere}h1{font-size:1.6rem;line-height:1.2}` +
	`button{font:inherit;padding:.7rem 1.4rem;border:2px solid #0b4fa0;border-radius:.4rem;background:#0b4fa0;color:#fff;cursor:pointer}` +
	`button:focus-visible{outline:3px solid #e07b00;outline-offset:3px}` +
	`@media(prefers-color-scheme:dark){body{color:#eee;background:#161616}}`

var unsubscribeTemplate = template.Must(template.New("leave").Parse(`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex, nofollow">
<title>{{.Title}}</title>
<style>` + unsubscribeStyle + `</style>
</head>
<body>
<main>
<h1>{{.Title}}</h1>
<p{{if not .Ask}} role="status"{{end}}>{{.Before}} {{with .Address}}<strong>{{.}}</strong>{{end}} {{.After}}</p>
{{if .Ask}}<form method="post">
<input type="hidden" name="List-Unsubscribe" value="One-Click">
<button type="submit">Unsubscribe</button>
</form>
{{end}}</main>
</body>
</html>
`))

// unsubscribeCSP allows the page only its own style and its own form.
var unsubscribeCSP = func() string {
	sum := sha256.Sum256([]byte(unsubscribeStyle))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
		"'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
}()

// renderUnsubscribePage writes a page.
func renderUnsubscribePage(w http.ResponseWriter, status int, page unsubscribePage) {
	var text bytes.Buffer
	if err := unsubscribeTemplate.Execute(&text, page); err != nil {
		panic("the page to unsubscribe can't be written: " + err.Error())
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(text.Len()))
	h.Set("Content-Security-Policy", unsubscribeCSP)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Robots-Tag", "noindex, nofollow")
	w.WriteHeader(status)
	_, _ = w.Write(text.Bytes()) // the client may have disconnected
}
