// Package awssm reads secrets from AWS Secrets Manager, with the official SDK.
//
//	v, err := awssm.New(awssm.Config{Region: "eu-west-1"}, secret.Operator(os.LookupEnv))
//
// A path is a secret's name or its ARN, which also says the region. A key is a
// member of the JSON object that the secret is; without one it is the whole text,
// or the whole binary value. A version is a stage, such as AWSPREVIOUS, or the id
// of a version, a UUID; none is AWSCURRENT.
//
// Without credentials in the configuration it finds them where every program of
// AWS does, the SDK's default chain: environment, profile, web identity of a pod,
// the role of a container or machine. The chain is not looked at before the first
// read.
package awssm
