// Package telemetry exports traces and metrics where the standard OTEL_* variables
// say, and where documents of agents say that theirs go.
//
//	tel, err := telemetry.Start(ctx, a)
//	if err != nil {
//		return err
//	}
//	defer tel.Stop()
//
// Without such variables nothing is exported. A document's collector gets neither the
// headers nor the certificates in the variables: they are the operator's own.
package telemetry
