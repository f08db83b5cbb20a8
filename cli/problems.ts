import type { Io } from './command.ts'
import { asRow, asRows, printable } from './table.ts'

/** Says what is missing in an answer for which other replicas were asked: one that is not whole is not to look whole. */
export function noteProblems(io: Io, answer: unknown): void {
  const { problems, replicas } = asRow(answer)
  const all = [
    ...(Array.isArray(problems) ? problems : []),
    ...asRows(replicas).flatMap(({ problem }) => problem ?? []),
  ]
  for (const problem of all) io.note(`not all replicas: ${printable(problem)}\n`)
}
