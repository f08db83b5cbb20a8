/** What is wrong with a YAML text, in one line, without the source that the parser quotes after a colon: it may hold a secret. */
export function yamlProblem(error: Error): string {
  return error.message.replace(/(?:(?<! ): |\n).*/s, '')
}
