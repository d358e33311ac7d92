// Package telemetry exports traces and metrics to the collectors that the standard OTEL_*
// variables and the documents of agents name.
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
