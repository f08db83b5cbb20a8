/**
 * The sessions with a target by network of callers, so that what one caller does to a session reaches none of other networks: exchanges
 * of one network use it at a time, and the next one gets it once it is idle.
 */
export class SessionsByNetwork<Session extends { network: string | undefined }> {
  /** Those that are idle have no network. */
  readonly #sessions = new Map<string | undefined, Session[]>()

  /** Of this network, or those that are idle; the one that came last is at the end. */
  of(network: string | undefined): readonly Session[] {
    return this.#sessions.get(network) ?? []
  }

  add(session: Session, network?: string): void {
    session.network = network
    const there = this.#sessions.get(network)
    if (there === undefined) this.#sessions.set(network, [session])
    else there.push(session)
  }

  /** One that was deleted stays so. */
  move(session: Session, network: string | undefined): void {
    if (this.delete(session)) this.add(session, network)
  }

  delete(session: Session): boolean {
    const here = this.#sessions.get(session.network)
    const at = here?.lastIndexOf(session) ?? -1
    if (at === -1) return false
    here!.splice(at, 1)
    if (here!.length === 0) this.#sessions.delete(session.network)
    return true
  }
}
