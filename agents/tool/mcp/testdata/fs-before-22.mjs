// The conformance suite imports fs.globSync, for a command that the test does
// not use; Node has it from version 22 on. With this, the suite runs on 20 too:
//
//	node --import ./fs-before-22.mjs node_modules/@modelcontextprotocol/conformance/dist/index.js
import { register } from 'node:module';

const fs = "export * from 'node:fs'; export const globSync = () => [];";
const hook = `
export async function resolve(specifier, context, next) {
  if (specifier === 'fs' && (context.parentURL ?? '').includes('/conformance/'))
    return { url: 'data:text/javascript,' + encodeURIComponent(${JSON.stringify(fs)}), shortCircuit: true };
  return next(specifier, context);
}`;
register('data:text/javascript,' + encodeURIComponent(hook));
