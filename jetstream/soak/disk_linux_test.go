package soak

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
)

// A soak that starts removes the disks of soaks that were killed. It leaves those of soaks that
// live, and what others have mounted, also under the same name.
func TestDisksOfKilledSoaksAreUnmounted(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	at := func(name string) string { return filepath.Join(base, name) }
	mine, err := newDisk(at("mine"), 1<<20)
	if err != nil {
		t.Skip(err)
	}
	for _, other := range []string{"other", diskSource} {
		if err := os.Mkdir(at(other), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mount(other, at(other), "tmpfs", 0, "size=65536"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unmount(at(other)) })
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	killed := exec.Command(self, "disk", at("killed, with a space"))
	out, err := killed.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := killed.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	killed.Stderr = os.Stderr
	if err := killed.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unmount(at("killed, with a space")) })
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "mounted\n" {
		t.Fatalf("the other soak says %q, %v", line, err)
	}
	mounted := func() (names []string) {
		text, err := os.ReadFile("/proc/self/mountinfo")
		if err != nil {
			t.Fatal(err)
		}
		for _, dir := range disksIn(string(text)) {
			if filepath.Dir(dir) == base {
				names = append(names, filepath.Base(dir))
			}
		}
		slices.Sort(names)
		return names
	}
	want := func(when string, names ...string) {
		t.Helper()
		if got := mounted(); !slices.Equal(got, names) {
			t.Errorf("%s: mounted are %q, want %q", when, got, names)
		}
	}
	start := func() {
		t.Helper()
		d, err := newDisk(at("next"), 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.close(); err != nil {
			t.Error(err)
		}
	}
	start()
	want("both live", diskSource, "killed, with a space", "mine")
	if err := killed.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = killed.Wait() // it was killed
	start()
	want("one was killed", diskSource, "mine")
	if err := mine.close(); err != nil {
		t.Error(err)
	}
	want("none lives", diskSource)
	if err := syscall.Unmount(at("other"), 0); err != nil {
		t.Errorf("the file system of another program: %v", err)
	}
}

func TestDisksAreFoundAmongMounts(t *testing.T) {
	t.Parallel()
	got := disksIn(`36 35 98:0 / /mnt rw,noatime master:1 - ext3 /dev/root rw
43 27 0:40 / /tmp/a\040b/n1 rw,relatime - tmpfs aeemesh-soak rw,size=1024k
44 27 0:41 / /tmp/c rw shared:7 master:1 - tmpfs aeemesh-soak rw
45 27 0:42 / /tmp/d rw - tmpfs aeemesh-soak-2 rw
46 27 0:43 / /tmp/e rw - ext4 aeemesh-soak rw
47 27 0:44 / /tmp/f\04 rw - tmpfs tmpfs rw
broken
`)
	if want := []string{"/tmp/a b/n1", "/tmp/c"}; !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
}
