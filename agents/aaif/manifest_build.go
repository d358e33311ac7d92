package aaif

import (
	"iter"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
)

// A PlatformConfig describes a runtime; [PlatformConfig.Manifest] makes a
// manifest from it.
type PlatformConfig struct {
	Name    string // required
	Version string // required
	Vendor  string
	Level   Level // the highest level fully supported; default Core

	Offer             Offer
	Providers         []Provider        // providers that the platform routes to
	RoutingStrategies []RoutingStrategy // beyond preferred_first, which is implied
	Vaults            []VaultProvider

	IssuedAt time.Time // zero: left out
}

// capabilitiesExtension lists the capabilities of a platform for which
// manifests have no field, such as io.batch.
const capabilitiesExtension = "x-aeemesh-capabilities"

// Manifest makes a manifest. Capabilities that the offer lacks are left out,
// which means the same as false.
func (p PlatformConfig) Manifest() *Manifest {
	m := &Manifest{
		Standard: Standard,
		Version:  Version,
		Platform: Platform{
			Name: p.Name, Version: p.Version, Vendor: p.Vendor,
			ConformanceLevel:  p.Level,
			VersionsSupported: []string{Version},
			Capabilities:      new(ManifestCapabilities),
		},
	}
	set(&m.Platform.ConformanceLevel, LevelCore)
	if !p.IssuedAt.IsZero() {
		m.Platform.IssuedAt = p.IssuedAt.UTC().Format(time.RFC3339)
	}

	c := m.Platform.Capabilities
	allocate(reflect.ValueOf(c).Elem())
	left := maps.Clone(p.Offer.Capabilities) // capabilities that no field of the manifest covers yet
	for name, flag := range c.flags() {
		if !p.Offer.Offers(name) || name == CapStateCheckpoint && !p.Offer.Offers(CapStateRestore) {
			continue // the manifest's checkpoint means "can write and restore"
		}
		*flag = new(true)
		delete(left, name)
		delete(left, registryName(name))
		if name == CapStateCheckpoint {
			delete(left, CapStateRestore)
		}
	}
	c.Model.Providers = stringsOf(p.Providers)
	c.Model.RoutingStrategies = p.RoutingStrategies
	if len(p.Offer.Languages) > 0 {
		c.Orchestration.ConditionLanguages = p.Offer.Languages.Sorted()
		delete(left, CapConditionStructured)
	}
	c.Auth.Vault.Providers = manifestVaults(p.Vaults)
	prune(reflect.ValueOf(c).Elem())
	if len(left) > 0 {
		list, err := json.Marshal(map[string][]string{capabilitiesExtension: left.Sorted()})
		if err != nil {
			panic("aaif: manifest: " + err.Error()) // cannot happen: the names are text
		}
		m.Extensions = list
	}
	return m
}

// flags yields every boolean of the capabilities by its name, such as tool.mcp. Nil blocks
// are skipped.
func (c *ManifestCapabilities) flags() iter.Seq2[string, **bool] {
	return func(yield func(string, **bool) bool) { yieldFlags(reflect.ValueOf(c).Elem(), "", yield) }
}

// yieldFlags yields the booleans of a block: the name of each is its path of json tags,
// except that auth.vault.supported is auth.vault.
func yieldFlags(block reflect.Value, path string, yield func(string, **bool) bool) bool {
	for i := range block.NumField() {
		tag, _, _ := strings.Cut(block.Type().Field(i).Tag.Get("json"), ",")
		name := strings.TrimSuffix(path+tag, ".supported")
		field := block.Field(i)
		if flag, is := field.Addr().Interface().(**bool); is {
			if !yield(name, flag) {
				return false
			}
		} else if field.Kind() == reflect.Pointer && !field.IsNil() && !yieldFlags(field.Elem(), name+".", yield) {
			return false
		}
	}
	return true
}

// allocate makes every block below a block; prune removes those that stayed empty.
func allocate(block reflect.Value) {
	for i := range block.NumField() {
		if f := block.Field(i); isBlock(f) {
			f.Set(reflect.New(f.Type().Elem()))
			allocate(f.Elem())
		}
	}
}

func prune(block reflect.Value) {
	for i := range block.NumField() {
		if f := block.Field(i); isBlock(f) {
			prune(f.Elem())
			if f.Elem().IsZero() {
				f.SetZero()
			}
		}
	}
}

func isBlock(f reflect.Value) bool {
	return f.Kind() == reflect.Pointer && f.Type().Elem().Kind() == reflect.Struct
}

// manifestVaults converts vaults to the manifest's names; "custom" has none.
func manifestVaults(vaults []VaultProvider) []string {
	names := map[VaultProvider]string{
		VaultAWSSecretsManager: "aws_secrets_manager", VaultHashiCorp: "hashicorp_vault",
		VaultAzureKeyVault: "azure_key_vault", VaultGCPSecretManager: "gcp_secret_manager", Vault1Password: "1password",
	}
	var out []string
	for _, v := range vaults {
		if name := names[v]; name != "" && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

func stringsOf[T ~string](names []T) []string {
	var out []string
	for _, n := range names {
		out = append(out, string(n))
	}
	return out
}
