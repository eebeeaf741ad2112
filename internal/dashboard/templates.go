// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"github.com/mailstead/mailstead/internal/template"
)

func (d *Dashboard) templates(v *visit) (page, error) {
	p := v.pageOf()
	list, more, err := d.Templates.List(v.ctx, v.in.Account, p)
	if err != nil {
		return page{}, err
	}
	data := struct {
		List  []template.Template
		Pager pager
	}{List: list}
	if n := len(list); n > 0 {
		data.Pager = pagerOf("/templates", p, n, more, list[0].ID, list[n-1].ID)
	}
	return page{Template: "templates", Title: "Templates", Section: "templates", Data: data}, nil
}

// editor is what the page of a template shows.
type editor struct {
	Template template.Template // zero for a new one
	Rows     []variableRow
	Types    [][2]string
	Versions []template.Version // the newest of them
}

// shownVersions is how many versions the page of a template names.
const shownVersions = 5

func (d *Dashboard) newTemplate(v *visit) (page, error) {
	e := editor{Types: variableTypes, Rows: rowsOf(nil)}
	if v.form != nil {
		e.Rows = enteredRows(v.form)
	}
	return page{Template: "template-new", Title: "New template", Section: "templates", Data: e}, nil
}

func (d *Dashboard) addTemplate(v *visit) (done, error) {
	content, err := v.content()
	if err != nil {
		return done{}, err
	}
	made, err := d.Templates.Create(v.ctx, v.in.Account, template.New{Name: v.text("name"), Alias: v.text("alias"), Content: content})
	return done{To: "/templates/" + made.ID.String(), Told: "Made the template “" + made.Name + "”."}, err
}

func (d *Dashboard) template(v *visit) (page, error) {
	id, err := v.id("id")
	if err != nil {
		return page{}, err
	}
	e := editor{Types: variableTypes}
	if e.Template, err = d.Templates.Get(v.ctx, v.in.Account, id); err != nil {
		return page{}, err
	}
	if e.Versions, _, err = d.Templates.Versions(v.ctx, v.in.Account, id, 0, shownVersions); err != nil {
		return page{}, err
	}
	e.Rows = rowsOf(e.Template.Variables)
	if v.form != nil && v.form.Has("key") {
		e.Rows = enteredRows(v.form)
	}
	return page{Template: "template", Title: e.Template.Name, Section: "templates", Data: e}, nil
}

func (d *Dashboard) changeTemplate(v *visit) (done, error) {
	id, err := v.id("id")
	if err != nil {
		return done{}, err
	}
	c, err := v.content()
	if err != nil {
		return done{}, err
	}
	name, alias := v.text("name"), v.text("alias")
	t, err := d.Templates.Update(v.ctx, v.in.Account, id, template.Change{
		Name: &name, Alias: &alias, Subject: &c.Subject, HTML: &c.HTML, Text: &c.Text, InlineCSS: &c.InlineCSS, Variables: &c.Variables, Draft: v.form.Has("draft"),
	})
	told := "Saved and published the template “" + t.Name + "”."
	if t.Published != t.Latest {
		told = "Saved a draft of the template “" + t.Name + "”: its published version is sent as before."
	}
	return done{To: "/templates/" + id.String(), Told: told}, err
}

func (d *Dashboard) publishTemplate(v *visit) (done, error) {
	id, err := v.id("id")
	if err != nil {
		return done{}, err
	}
	number, err := v.number("version")
	if err != nil {
		return done{}, err
	}
	t, err := d.Templates.Publish(v.ctx, v.in.Account, id, number)
	return done{To: "/templates/" + id.String() + "/versions", Told: "Published version " + v.text("version") + " of the template “" + t.Name + "”."}, err
}

func (d *Dashboard) duplicateTemplate(v *visit) (done, error) {
	id, err := v.id("id")
	if err != nil {
		return done{}, err
	}
	old, err := d.Templates.Get(v.ctx, v.in.Account, id)
	if err != nil {
		return done{}, err
	}
	made, err := d.Templates.Duplicate(v.ctx, v.in.Account, id, v.text("copy"))
	return done{To: "/templates/" + made.ID.String(), Told: "Copied the template “" + old.Name + "” to “" + made.Name + "”."}, renamed(err, "name", "copy")
}

func (d *Dashboard) deleteTemplate(v *visit) (done, error) {
	id, err := v.id("id")
	if err != nil {
		return done{}, err
	}
	old, err := d.Templates.Get(v.ctx, v.in.Account, id)
	if err != nil {
		return done{}, err
	}
	return done{To: "/templates", Told: "Deleted the template “" + old.Name + "”."}, d.Templates.Delete(v.ctx, v.in.Account, id)
}

// version reads the template and the number of a version that a path names.
func (d *Dashboard) version(v *visit, number int) (template.Template, error) {
	id, err := v.id("id")
	if err != nil {
		return template.Template{}, err
	}
	if number < 1 {
		return template.Template{}, notFound()
	}
	return d.Templates.GetVersion(v.ctx, v.in.Account, id, number)
}
