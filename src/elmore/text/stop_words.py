"""English words that studies of meaning leave out."""

from __future__ import annotations

# They have many uses, none of which is what a study of meanings looks for.
FUNCTION_WORDS = frozenset(
    """a about above after again against all also although am among an and another any are as at be
    because been before being below between both but by can cannot could did do does doing done down
    during each either else ever every few for from further had has have having he her here hers
    herself him himself his how however i if in into is it its itself just least less may me might
    mine more most much must my myself neither never no none nor not now of off often on once one
    only onto or other others ought our ours ourselves out over own per quite rather same shall she
    should since so some such than that the their theirs them themselves then there therefore these
    they this those though through thus till to too toward towards under unless until up upon us
    very was we were what whatever when where whether which while who whom whose why will with
    within without would yet you your yours yourself yourselves n't 's 'd 'll 'm 're 've""".split()
)
