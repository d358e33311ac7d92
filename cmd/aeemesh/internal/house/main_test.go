package main

import "testing"

// The live lane of package mesh does not know the durable one (mesh/durable_port.go): so the files
// that need each other are two circles, and neither has half of the package.
func TestTheLanesAreTwoCircles(t *testing.T) {
	t.Parallel()
	loaded, err := load([]string{"github.com/aeemesh/aeemesh/mesh"})
	if err != nil {
		t.Fatal(err)
	}
	f := measure(loaded[0])
	if 2*f.circleLines >= f.lines {
		t.Errorf("%d of %d lines need each other in a circle", f.circleLines, f.lines)
	}
	if f.methods > 60 {
		t.Errorf("%s has %d methods", f.largest, f.methods)
	}
}
