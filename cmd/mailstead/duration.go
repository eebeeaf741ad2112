// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"strconv"
	"time"

	"github.com/alecthomas/kong"
)

var errDuration = errors.New("give a length of time such as 30s, 12h, 30d or 2w")

// daysPattern matches the units that time.ParseDuration lacks.
var daysPattern = regexp.MustCompile(`^([0-9]{1,6})([dw])`)

// maxDays is the maximum number of days in a time.Duration.
const maxDays = int(math.MaxInt64 / (24 * time.Hour))

// parseDuration parses the syntax of time.ParseDuration, optionally after weeks and days, such as
// 2w or 1d12h. A day has 24 hours.
func parseDuration(text string) (time.Duration, error) {
	var sum int // in days
	rest := text
	for m := daysPattern.FindStringSubmatch(rest); m != nil; m = daysPattern.FindStringSubmatch(rest) {
		n, _ := strconv.Atoi(m[1]) // a few digits
		if m[2] == "w" {
			n *= 7
		}
		if sum += n; sum > maxDays {
			return 0, errDuration
		}
		rest = rest[len(m[0]):]
	}
	whole := time.Duration(sum) * 24 * time.Hour
	if rest == "" && text != "" {
		return whole, nil
	}
	d, err := time.ParseDuration(rest)
	if err != nil || d < 0 && rest != text || d > math.MaxInt64-whole {
		return 0, errDuration
	}
	return whole + d, nil
}

// durationMapper makes kong parse flags and settings with parseDuration.
func durationMapper() kong.Option {
	return kong.TypeMapper(reflect.TypeFor[time.Duration](), kong.MapperFunc(func(ctx *kong.DecodeContext, target reflect.Value) error {
		token, err := ctx.Scan.PopValue("duration")
		if err != nil {
			return err
		}
		d, err := parseDuration(fmt.Sprint(token.Value))
		if err == nil {
			target.SetInt(int64(d))
		}
		return err
	}))
}
