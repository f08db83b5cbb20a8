import type { Io } from './command.ts'
import { asRow, asRows, printable } from './table.ts'

/** Reports replicas that did not answer, so that a partial answer does not look complete. */
export function reportMissingReplicas(io: Io, answer: unknown): void {
  const { problems, replicas } = asRow(answer)
  const all = [
    ...(Array.isArray(problems) ? problems : []),
    ...asRows(replicas).flatMap(({ problem }) => problem ?? []),
  ]
  for (const problem of all) io.note(`not all replicas: ${printable(problem)}\n`)
}
