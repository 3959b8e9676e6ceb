"""The words of the prompts: common short nouns, which most tokenizers write as one token after a space."""

WORDS = tuple(
    """
    anchor apple arrow badge basin beach bell bench berry blade blanket board bottle branch brick bridge
    brush bucket butter button cabin cable camel candle canvas carbon carpet castle cedar chain chalk
    cheese cherry chess circle clay cliff clock cloud coal coffee coin copper coral corn cotton couch
    cousin crane cream creek crown crystal curtain dance desert diamond dinner dolphin door dragon drum
    eagle east echo elbow engine falcon farm feather fence ferry fiber field finger fire flag flame
    flute forest fork fossil fountain fox frame frost fruit galaxy garden garlic gate ginger glass globe
    gold grain grape grass gravel guitar hammer harbor hat hawk helmet herb hill honey horn horse hotel
    ice ink insect iron island ivory jacket jewel jungle kettle key king kitchen knife ladder lake lamp
    lantern leaf lemon letter library lion lizard lunch magnet maple marble market mask meadow metal
    milk mirror monkey moon moss mountain mouse mud museum music needle nest north novel oak ocean olive
    onion opera orange orchard oven owl oxygen paint palace panda paper parade parrot peach pearl pencil
    pepper piano pillow pilot pine planet plate pocket poem pond potato prince pulse pump queen rabbit
    radio rain ribbon rice river road rocket roof root rope rose sail salad salt sand school sea seed
    shadow shark sheep shell shirt shoe shore silk silver skate sky slate smoke snail snow soap song
    soup south spark spice spider spoon spring square stamp star steam steel stone storm straw street
    sugar summer sun sword table tail tea temple tent theater thread thunder ticket tiger timber toast
    tomato torch tower toy train tree trumpet tunnel turtle valley vase velvet village vine violin voice
    wagon wall walnut water wave wheat wheel whistle willow window wine winter wolf wood wool yard zebra
    zinc
    """.split()  # noqa: SIM905 - readable as text, one long list otherwise
)
"""Distinct lower-case words of the letters a to z."""
